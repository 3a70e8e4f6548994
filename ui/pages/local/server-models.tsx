// Models on the server whose files may be copied into this browser (setting share_model_files).
import { t } from "../../base/language.ts";
import type { ModelContent } from "../../local/model-storage.ts";
import { request } from "../../server/client.ts";
import { models } from "../../server/models.ts";
import type { ModelEntry } from "../../server/wire.ts";

/** Copies a model into the browser. `open`: returns the content of the model. */
export type KeepModel = (name: string, open: (signal: AbortSignal) => Promise<ModelContent>) => void;

interface Props {
  readonly isDisabled: boolean;
  readonly onKeep: KeepModel;
}

export function ServerModels({ isDisabled, onKeep }: Props) {
  const shared = (models.value ?? []).filter(({ id, file_name: name }) => id !== "default" && typeof name === "string");
  if (shared.length === 0) return <p class="quiet">{t("noSharedModels")}</p>;
  return (
    <p class="actions">
      {shared.map((model) => (
        <button
          key={model.id}
          type="button"
          class="button"
          disabled={isDisabled}
          onClick={() => onKeep(String(model.file_name), (signal) => contentOf(model, signal))}
        >
          {t("copyFromServer", { name: String(model.file_name) })}
        </button>
      ))}
    </p>
  );
}

async function contentOf({ id }: ModelEntry, signal: AbortSignal): Promise<ModelContent> {
  const { body, headers } = await request(`v1/models/${encodeURIComponent(id)}/file`, { signal });
  if (body === null) throw new Error("the server sent no content");
  return { stream: body, bytes: Number(headers.get("x-file-bytes")) };
}
