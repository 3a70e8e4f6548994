// Model names: finds the model or adapter to which a name in a request refers. Pure functions.
import { ServerError } from "../../runtime/errors.ts";
import { adapterCards, cardNamed } from "../api/adapter-cards.ts";
import type { ModelEntry, ResolvedModel } from "../api/inference.ts";

type Named = Pick<ModelEntry, "id" | "adapters">;

export type NamedModel = Omit<ResolvedModel, "defaults">;

/** Maximum number of names that an error message lists, and of characters of the client's name that it quotes. */
const listedNames = 32;
const quotedLength = 256;

/** Returns the model or adapter with this name. undefined and "default" mean the default model. Throws model_not_found. */
export function resolveName(name: string | undefined, models: readonly Named[], defaultId: string): NamedModel {
  const id = name === undefined || name === "default" ? defaultId : name;
  if (models.some((model) => model.id === id)) return { id, adapter: null };
  const card = cardNamed(name ?? "", models);
  if (card === null) throw unknownModel(name ?? "", models);
  return { id: card.modelId, adapter: { alias: card.adapter.alias } };
}

export function unknownModel(name: string, models: readonly Named[]): ServerError {
  const cards = adapterCards(models, listedNames).map(({ id }) => id);
  const known = ["default", ...models.map(({ id }) => id), ...cards];
  const count = 1 + models.length + models.reduce((sum, { adapters }) => sum + adapters.length, 0);
  const more = count - listedNames;
  const list = known.slice(0, listedNames).join(", ") + (more > 0 ? ` and ${more} more` : "");
  const text = `Requested model '${name.slice(0, quotedLength)}' is not available. Available models: ${list}`;
  return new ServerError("model_not_found", text, { param: "model" });
}
