// Delimiters that mark the end of a cell's output on stdout and stderr. They contain a random number of this process, so that a
// cell cannot write one by accident.
import { randomBytes } from "node:crypto";

const nonce = randomBytes(8).toString("hex");

export const marks = { stdout: `<<troupe-${nonce}-out>>`, stderr: `<<troupe-${nonce}-err>>` } as const;
