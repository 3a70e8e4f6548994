// Owns the names under which adapters stand among the models: `<model>::<alias>`, and what such a name stands for. Used by
// whoever resolves the models of requests, and by the list of models. Pure.
import type { AdapterEntry, ModelEntry } from "./inference.ts";

/** An adapter as a model of its own. */
export interface AdapterCard {
  readonly id: string;
  readonly modelId: string;
  readonly adapter: AdapterEntry;
}

type Adapted = Pick<ModelEntry, "id" | "adapters">;

/** A card for each adapter, in the order of the models and of their adapters. No two have the same id, nor a model's. */
export function adapterCards(models: readonly Adapted[]): readonly AdapterCard[] {
  const modelIds = new Set(models.map(({ id }) => id));
  return models.flatMap(({ id: modelId, adapters }) =>
    adapters.map((adapter) => ({ id: cardId(modelId, adapter.alias, modelIds), modelId, adapter })),
  );
}

/** The card of this id, or of this alias where no other model has it too; null where there is none. */
export function cardNamed(name: string, models: readonly Adapted[]): AdapterCard | null {
  const cards = adapterCards(models);
  const named = cards.find(({ id }) => id === name);
  if (named !== undefined) return named;
  const [only, another] = cards.filter(({ adapter }) => adapter.alias === name);
  return only === undefined || another !== undefined ? null : only;
}

/** Escaped parts cannot hold `::`, so that cards of different adapters differ; an id that a model has is counted on. */
function cardId(modelId: string, alias: string, modelIds: ReadonlySet<string>): string {
  const plain = `${escaped(modelId)}::${escaped(alias)}`;
  let id = plain;
  for (let count = 2; modelIds.has(id); count++) id = `${plain}#${count}`;
  return id;
}

function escaped(part: string): string {
  return part.replaceAll("%", "%25").replaceAll(":", "%3A").replaceAll("#", "%23");
}
