// Integer keys: rewrites template code that uses dictionaries with integer keys, because the template engine does not
// support them. Called before a template is compiled. No side effects.

/** Matches a statement that sets a variable to a dictionary of plain values with integer keys. */
const dictionary = /\{%(-?)\s*set\s+([A-Za-z_]\w*)\s*=\s*\{((?:\s*-?\d+\s*:[^{}:,]+(?:,|(?=\})))+)\s*\}\s*(-?)%\}/g;
const member = /(-?\d+)\s*:\s*([^,]+?)\s*(?:,|$)/g;

/**
 * Returns the source with string keys instead of integer keys, both in the dictionaries and in look-ups. A sorted
 * dictionary (`dictsort`) is replaced by a list of pairs in the order of the integers.
 */
export function withoutIntegerKeys(source: string): string {
  const names: string[] = [];
  const rewritten = source.replace(dictionary, (_, open: string, name: string, members: string, close: string) => {
    names.push(name);
    const pairs = [...members.matchAll(member)].map(([, key = "", value = ""]) => [key, value] as const);
    const sorted = pairs.toSorted(([a], [b]) => Number(a) - Number(b));
    const keyed = pairs.map(([key, value]) => `"${key}": ${value}`).join(", ");
    const listed = sorted.map(([key, value]) => `[${key}, ${value}]`).join(", ");
    return `{%${open} set ${name} = {${keyed}} %}{% set ${sortedName(name)} = [${listed}] ${close}%}`;
  });
  return names.reduce(
    (text, name) =>
      text
        .replace(new RegExp(`\\b${name}\\s*\\|\\s*dictsort\\b`, "g"), sortedName(name))
        .replace(new RegExp(`\\b${name}\\[(-?\\d+)\\]`, "g"), `${name}["$1"]`),
    rewritten,
  );
}

function sortedName(name: string): string {
  return `${name}_sorted_items`;
}
