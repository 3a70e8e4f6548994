// Notices: short messages at the edge of the page. Notices disappear after a while; errors stay until the user closes them.
import { signal } from "@preact/signals";
import { Button } from "./button.tsx";
import { t } from "./language.ts";

interface Notice {
  readonly id: number;
  readonly text: string;
  readonly isError: boolean;
}

const shownMs = 4000;
const mostNotices = 4;
const notices = signal<readonly Notice[]>([]);
let count = 0;

export function notify(text: string): void {
  const id = add(text, false);
  setTimeout(() => close(id), shownMs);
}

export function notifyError(error: unknown): void {
  add(error instanceof Error ? error.message : String(error), true);
}

export function Notices() {
  return (
    <div class="notices" role="status">
      {notices.value.map(({ id, text, isError }) => (
        <div key={id} class={isError ? "notice error" : "notice"}>
          <span>{text}</span>
          <Button icon="close" label={t("close")} onPress={() => close(id)} />
        </div>
      ))}
    </div>
  );
}

function add(text: string, isError: boolean): number {
  const id = ++count;
  const others = notices.value.filter((notice) => notice.text !== text);
  notices.value = [...others, { id, text, isError }].slice(-mostNotices);
  return id;
}

function close(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}
