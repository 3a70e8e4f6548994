// Editor of the answer's JSON schema, as text or as a form with the top-level properties.
import { useState } from "preact/hooks";
import { Button } from "../../base/button.tsx";
import { t } from "../../base/language.ts";

const types = ["string", "number", "integer", "boolean", "array", "object"] as const;

interface Property {
  readonly name: string;
  readonly type: string;
}

interface Props {
  readonly schema: string;
  readonly onChange: (schema: string) => void;
}

export function SchemaForm({ schema, onChange }: Props) {
  const [isText, setText] = useState(false);
  /** Text that is no JSON yet; null: the text is the schema. */
  const [draft, setDraft] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  const properties = propertiesOf(schema);
  const take = (text: string): void => {
    try {
      if (text.trim() !== "") JSON.parse(text);
      setDraft(null);
      setProblem("");
      onChange(text.trim());
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  const change = (next: readonly Property[]): void => onChange(next.length === 0 ? "" : schemaOf(next));
  const isTaken = (name: string): boolean => properties?.some((one) => one.name === name) === true;
  const rename = (i: number, name: string): void => {
    // Two properties of one name would become one. A name that is being typed may begin with the name of another property.
    if (properties !== null && !isTaken(name)) change(properties.map((one, k) => (k === i ? { ...one, name } : one)));
  };
  const add = (): void => {
    let number = 1;
    while (isTaken(`field${number}`)) number++;
    change([...(properties ?? []), { name: `field${number}`, type: "string" }]);
  };
  return (
    <fieldset class="schema">
      <legend>{t("schema")}</legend>
      {isText || properties === null ? (
        <>
          <textarea
            aria-label={t("schema")}
            spellcheck={false}
            rows={8}
            value={draft ?? schema}
            onInput={({ currentTarget }) => setDraft(currentTarget.value)}
            onChangeCapture={({ currentTarget }) => take(currentTarget.value)}
          />
          {problem !== "" && (
            <p class="problem" role="alert">
              {problem}
            </p>
          )}
        </>
      ) : (
        properties.map((property, i) => (
          <div key={i} class="property">
            <input
              type="text"
              aria-label={t("propertyName")}
              value={property.name}
              onInput={({ currentTarget }) => rename(i, currentTarget.value)}
            />
            <select
              aria-label={t("propertyType")}
              value={property.type}
              onChange={({ currentTarget }) =>
                change(properties.map((one, k) => (k === i ? { ...one, type: currentTarget.value } : one)))
              }
            >
              {types.map((type) => (
                <option key={type} value={type}>
                  {type}
                </option>
              ))}
            </select>
            <Button
              icon="close"
              label={t("removeProperty", { name: property.name })}
              onPress={() => change(properties.filter((_, k) => k !== i))}
            />
          </div>
        ))
      )}
      <div class="actions">
        {!isText && properties !== null && (
          <button type="button" class="button" onClick={add}>
            {t("addProperty")}
          </button>
        )}
        <button type="button" class="button" onClick={() => setText(!isText)}>
          {isText ? t("asForm") : t("asText")}
        </button>
      </div>
    </fieldset>
  );
}

/** Returns the properties of a schema; null if the form cannot represent the complete schema. */
function propertiesOf(schema: string): readonly Property[] | null {
  if (schema === "") return [];
  try {
    const parsed = JSON.parse(schema) as {
      readonly properties?: Readonly<Record<string, { readonly type?: unknown }>>;
    };
    const properties = Object.entries(parsed.properties ?? {}).map(([name, { type }]) => ({
      name,
      type: String(type),
    }));
    return schemaOf(properties) === JSON.stringify(parsed, null, 2) ? properties : null;
  } catch {
    return null;
  }
}

function schemaOf(properties: readonly Property[]): string {
  const schema = {
    type: "object",
    properties: Object.fromEntries(properties.map(({ name, type }) => [name, { type }])),
    required: properties.map(({ name }) => name),
    additionalProperties: false,
  };
  return JSON.stringify(schema, null, 2);
}
