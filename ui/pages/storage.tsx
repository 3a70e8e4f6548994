// Page of what the server keeps: files, stored responses and sessions.
import { useState } from "preact/hooks";
import { t } from "../base/language.ts";
import { notifyError } from "../base/notice.tsx";
import { bytes, moment } from "../base/times.ts";
import { ask } from "../server/client.ts";
import { usePolled } from "./polled.ts";
import { Table } from "./table.tsx";

interface FileEntry {
  readonly id: string;
  readonly name?: string;
  readonly filename?: string;
  readonly bytes: number;
  /** Seconds since 1970. */
  readonly created_at: number;
}

export function StoragePage() {
  const files = usePolled<{ readonly data: readonly FileEntry[] }>("v1/files?limit=100", 5000);
  return (
    <div class="page">
      <h1>{t("pageStorage")}</h1>
      <Table
        caption={t("files")}
        none={files.error?.message ?? (files.value === null ? t("loading") : t("noFiles"))}
        heads={[t("name"), t("size"), t("created"), ""]}
        rows={(files.value?.data ?? []).map(({ id, name, filename, bytes: size, created_at }) => ({
          key: id,
          cells: [
            name ?? filename ?? id,
            bytes(size),
            moment(created_at * 1000),
            <Remove key="delete" path={`v1/files/${id}`} onDone={files.refresh} />,
          ],
        }))}
      />
    </div>
  );
}

/** Deletes an object after a second press. */
function Remove({ path, onDone }: { readonly path: string; readonly onDone: () => void }) {
  const [isSure, setSure] = useState(false);
  const press = (): void => {
    if (!isSure) {
      setSure(true);
      return;
    }
    setSure(false);
    ask(path, { method: "DELETE" }).then(onDone).catch(notifyError);
  };
  return (
    <button type="button" class={isSure ? "button danger" : "button"} onClick={press} onBlur={() => setSure(false)}>
      {isSure ? t("deleteReally") : t("delete")}
    </button>
  );
}
