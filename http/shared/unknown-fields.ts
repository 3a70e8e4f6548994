// Unknown fields of a request body: the setting that says what happens to them, and the response header that lists them.

export type UnknownFields = "ignore" | "refuse";

export const UNKNOWN_FIELDS_HEADER = "x-ignored-fields";
