// Button that deletes or cancels an object on the server, after a second press as confirmation.
import { useState } from "preact/hooks";
import { t } from "../base/language.ts";
import { notifyError } from "../base/notice.tsx";
import { type Ask, ask } from "../server/client.ts";

interface Props {
  readonly path: string;
  readonly method?: Ask["method"];
  readonly body?: object;
  readonly label?: string;
  readonly onDone: () => void;
}

export function Remove({ path, method = "DELETE", body, label = t("delete"), onDone }: Props) {
  const [isSure, setSure] = useState(false);
  const press = (): void => {
    if (!isSure) {
      setSure(true);
      return;
    }
    setSure(false);
    ask(path, { method, ...(body && { body }) })
      .then(onDone)
      .catch(notifyError);
  };
  return (
    <button type="button" class={isSure ? "button danger" : "button"} onClick={press} onBlur={() => setSure(false)}>
      {isSure ? t("reallySure", { action: label }) : label}
    </button>
  );
}
