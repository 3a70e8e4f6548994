// Models of the server, for the model choice.
import { signal } from "@preact/signals";
import { t } from "../base/language.ts";
import { notifyError } from "../base/notice.tsx";
import { localName } from "../local/local-model.ts";
import { ask, needsKey } from "./client.ts";
import type { ModelEntry } from "./wire.ts";

/** Models in the server's order; null until they have been read. */
export const models = signal<readonly ModelEntry[] | null>(null);

/** Returns a short display name: the name of a local model, or the file name if the id is a path. */
export function shortName(id: string): string {
  const local = localName(id);
  if (local?.device === "gpu") return `${local.name} – ${t("browserGpu")}`;
  if (local !== null) return `${local.name} (${t("pageLocal")})`;
  return id.startsWith("/") ? (id.split("/").at(-1) ?? id) : id;
}

export async function readModels(): Promise<void> {
  try {
    models.value = (await ask<{ readonly data: readonly ModelEntry[] }>("v1/models")).data;
  } catch (error) {
    if (!needsKey.value) notifyError(error);
  }
}
