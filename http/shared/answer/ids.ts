// Response ids: a prefix for the kind of response, and 96 random bits.
import { randomBytes } from "node:crypto";

export function randomId(prefix: string, separator: "-" | "_" = "-"): string {
  return `${prefix}${separator}${randomBytes(12).toString("hex")}`;
}
