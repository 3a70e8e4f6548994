// Marks that end the output of a cell on stdout and stderr. They contain a random number of this process, so that a cell cannot
// write one by accident.
import { randomBytes } from "node:crypto";

const nonce = randomBytes(8).toString("hex");

export const marks = { stdout: `<<troupe-${nonce}-out>>`, stderr: `<<troupe-${nonce}-err>>` } as const;
