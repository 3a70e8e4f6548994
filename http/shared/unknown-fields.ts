// Unknown fields of a request body: the setting that decides whether they are rejected, and the response header that lists
// them.

export type UnknownFields = "ignore" | "refuse";

export const UNKNOWN_FIELDS_HEADER = "x-ignored-fields";
