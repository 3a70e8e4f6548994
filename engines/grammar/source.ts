// Owns what a grammar is between the agents side, which translates what clients send, and the model's place, which compiles
// it: plain data that any of the grammar engine's front doors takes.

export type GrammarSource =
  | { readonly kind: "json" }
  /** A JSON schema as text, of the keywords the grammar engine enforces and no others. */
  | { readonly kind: "json_schema"; readonly schema: string }
  /** Rules in the grammar engine's EBNF; the first to match is `root`. */
  | { readonly kind: "ebnf"; readonly grammar: string }
  /** Free text with constrained parts, in the grammar engine's structural tag format, as JSON text. */
  | { readonly kind: "structural_tag"; readonly tag: string };
