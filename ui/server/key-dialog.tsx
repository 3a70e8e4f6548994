// Dialog for the API key of the server.
import { useState } from "preact/hooks";
import { Dialog } from "../base/dialog.tsx";
import { t } from "../base/language.ts";
import { apiKey, needsKey } from "./client.ts";
import { readModels } from "./models.ts";

export function KeyDialog() {
  const [key, setKey] = useState(apiKey.value);
  const close = (): void => {
    needsKey.value = false;
  };
  const save = (event: Event): void => {
    event.preventDefault();
    apiKey.value = key.trim();
    close();
    void readModels();
  };
  return (
    <Dialog title={t("apiKey")} onClose={close}>
      <form onSubmit={save}>
        <p>{t("apiKeyHelp")}</p>
        <input
          type="password"
          aria-label={t("apiKey")}
          autocomplete="off"
          value={key}
          onInput={({ currentTarget }) => setKey(currentTarget.value)}
        />
        <div class="actions">
          <button type="submit" class="button main">
            {t("save")}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
