// Adapter cards: adapters listed as models, under the ids `<model>::<alias>`. Creates the ids and resolves them. Pure functions.
import type { AdapterEntry, ModelEntry } from "./inference.ts";

/** An adapter in the list of models. */
export interface AdapterCard {
  readonly id: string;
  readonly modelId: string;
  readonly adapter: AdapterEntry;
}

type Adapted = Pick<ModelEntry, "id" | "adapters">;

/** Cards of the adapters, at most `limit`, in the order of the models and their adapters. Their ids differ from each other and from model ids. */
export function adapterCards(models: readonly Adapted[], limit = Number.POSITIVE_INFINITY): readonly AdapterCard[] {
  const modelIds = idsOf(models);
  const cards: AdapterCard[] = [];
  for (const { id: modelId, adapters } of models) {
    for (const adapter of adapters.slice(0, limit - cards.length)) {
      cards.push({ id: cardId(modelId, adapter.alias, modelIds), modelId, adapter });
    }
  }
  return cards;
}

/** The card with this id, or with this alias if only one model has it; null: none. Creates no other cards. */
export function cardNamed(name: string, models: readonly Adapted[]): AdapterCard | null {
  const modelIds = idsOf(models);
  const [, alias = null] = /^[^:]*::([^:#]*)(?:#\d+)?$/.exec(name) ?? [];
  const named = alias === null ? [] : cardsOf(unescaped(alias), models, modelIds);
  const found = named.find(({ id }) => id === name);
  if (found !== undefined) return found;
  const [only, another] = cardsOf(name, models, modelIds);
  return only === undefined || another !== undefined ? null : only;
}

function idsOf(models: readonly Adapted[]): ReadonlySet<string> {
  return new Set(models.map(({ id }) => id));
}

/** A card for each model that has the alias. */
function cardsOf(alias: string, models: readonly Adapted[], modelIds: ReadonlySet<string>): AdapterCard[] {
  return models.flatMap(({ id: modelId, adapters }) => {
    const adapter = adapters.find((entry) => entry.alias === alias);
    return adapter === undefined ? [] : [{ id: cardId(modelId, alias, modelIds), modelId, adapter }];
  });
}

/** Escaped parts contain no `::`, so the cards of two adapters differ. A number is added to an id that a model has. */
function cardId(modelId: string, alias: string, modelIds: ReadonlySet<string>): string {
  const plain = `${escaped(modelId)}::${escaped(alias)}`;
  let id = plain;
  for (let count = 2; modelIds.has(id); count++) id = `${plain}#${count}`;
  return id;
}

function escaped(part: string): string {
  return part.replaceAll("%", "%25").replaceAll(":", "%3A").replaceAll("#", "%23");
}

function unescaped(part: string): string {
  return part.replaceAll("%23", "#").replaceAll("%3A", ":").replaceAll("%25", "%");
}
