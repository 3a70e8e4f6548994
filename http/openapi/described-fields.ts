// Description of fields in Markdown, for docs/protocols.md: a table of the supported fields, and lists of the ignored and refused ones.
import { code, markdownTable } from "../../runtime/markdown-table.ts";
import type { Field } from "./fields.ts";

/** Maximum number of types and literal values listed for one field. */
const MAX_TYPES = 24;

/** Returns a table of the supported fields, and lists of the ignored and refused ones. */
export function describedFields(fields: readonly Field[]): string {
  const supported = fields.filter(({ support }) => support === "supported");
  const rows = folded(supported).map((row) => rowOf(row, supported));
  const unused = (["ignored", "refused"] as const).flatMap((support) => {
    const listed = byReason(fields.filter((field) => field.support === support));
    const name = `${support.charAt(0).toUpperCase()}${support.slice(1)}`;
    return listed === "" ? [] : [`_${name}_:\n\n${listed}`];
  });
  const described = rows.length === 0 ? [] : [markdownTable(["field", "type", "default", "description"], rows)];
  return [...described, ...unused].join("\n\n");
}

interface Row {
  readonly field: Field;
  /** Inner fields without a description of their own. */
  readonly inner: Field[];
}

/** Folds inner fields without a description and default into the row of the field around them. */
function folded(fields: readonly Field[]): readonly Row[] {
  const rows: Row[] = [];
  for (const field of fields) {
    const around = rows.findLast((row) => isInside(field, row.field));
    const isPlain = field.description === "" && field.default === null;
    if (isPlain && around !== undefined) around.inner.push(field);
    else rows.push({ field, inner: [] });
  }
  return rows;
}

function isInside({ path }: Field, { path: outer }: Field): boolean {
  return path.startsWith(`${outer}.`) || path.startsWith(`${outer}[`);
}

function rowOf({ field, inner }: Row, all: readonly Field[]): readonly string[] {
  const { path, types, default: value, description: text } = field;
  const leaves = inner.filter((one) => !all.some((other) => isInside(other, one)));
  const listed = leaves.map((one) => shownInside(one, path)).join(", ");
  const line = text.replaceAll(/\s*\n\s*/g, " ");
  // A default that is no value is a sentence at the end of the description.
  const [said, default_ = ""] = value === null ? (/ Default: ([^.;]+(?:; [^.]+)?)\.$/.exec(line) ?? []) : [];
  const shown = said === undefined ? line : line.slice(0, -said.length);
  return [
    nameWithRequired(field),
    inWords(types),
    value === null
      ? default_.replace(/^the model's, see `defaults` in GET \/v1\/models/, "_the model's_")
      : code(value),
    [shown, ...(listed === "" ? [] : [`Fields: ${listed}.`])].filter(Boolean).join(" "),
  ];
}

/** Returns the path of an inner field relative to `outer`, with its literals if it has several. */
function shownInside({ path, types }: Field, outer: string): string {
  const name = code(path.slice(outer.length).replace(/^(\[\])*\./, ""));
  return types.length > 1 && types.every(isLiteral) ? `${name} (${inWords(types)})` : name;
}

/** Lists fields with their literals, grouped by reason. */
function byReason(fields: readonly Field[]): string {
  const shown = groupsBy(fields, ({ description: text }) => text).map(([text, group]) => {
    const names = groupsBy(group, ({ types }) => (types.every(isLiteral) ? types.join(", ") : ""));
    const listed = names.map(
      ([literals, same]) => `${same.map(({ path }) => code(path)).join(", ")}${literals && ` = ${literals}`}`,
    );
    const reason = text.replace(/^(Ignored|Refused): /, "").replace(/\.$/, "");
    return `- ${listed.join("; ")}${reason && `: ${reason}`}`;
  });
  return shown.join("\n");
}

function groupsBy(fields: readonly Field[], keyOf: (field: Field) => string): [string, readonly Field[]][] {
  const keys = [...new Set(fields.map(keyOf))];
  return keys.map((key) => [key, fields.filter((field) => keyOf(field) === key)]);
}

function isLiteral(type: string): boolean {
  return type.startsWith("`");
}

function inWords(types: readonly string[]): string {
  const separator = types.every(isLiteral) ? ", " : " or ";
  const shown = types.length > MAX_TYPES ? types.slice(0, MAX_TYPES - 1) : types;
  const others = types.length - shown.length;
  return shown.join(separator) + (others === 0 ? "" : `${separator}${others} others`);
}

/** Lists the names of fields. */
export function namesOf(fields: readonly Field[]): string {
  return fields.map(nameWithRequired).join(", ");
}

function nameWithRequired({ path, isRequired }: Field): string {
  return code(path) + (isRequired ? " (required)" : "");
}
