// Schemas of `bench structured`. They do not limit the length of a response, so responses are as long as free text.

/** List of records with texts, numbers and a choice. No response of the benchmark reaches the end of the list. */
export const endlessList = listOf("people", ["junior", "senior", "lead"]);

/** Returns a schema whose names and choices differ from those of all other serial numbers. */
export function newSchema(serial: number): object {
  return listOf(`list${serial}`, [`low${serial}`, `middle${serial}`, `high${serial}`]);
}

/** Returns the `response_format` field of a request for this schema. */
export function schemaFormat(schema: object): object {
  return { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
}

function listOf(name: string, choices: readonly string[]): object {
  const record = object({
    name: { type: "string", minLength: 4, maxLength: 40 },
    age: { type: "integer" },
    level: { enum: choices },
    isActive: { type: "boolean" },
    address: object({ street: { type: "string" }, number: { type: "integer" } }),
    notes: { type: "array", minItems: 1, maxItems: 3, items: { type: "string", minLength: 20 } },
  });
  return object({ [name]: { type: "array", minItems: 8, items: record } });
}

function object(properties: Readonly<Record<string, object>>): object {
  return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
}
