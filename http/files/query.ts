// Query parameters and form fields of the files routes.
import { z } from "zod";
import { expected } from "../issues.ts";

/** Purposes that clients send for attachments. All of them are stored as user_data. */
export const PURPOSES = ["user_data", "assistants", "vision"] as const;

export const filesQuery = z.object({
  after: z.string().max(256).optional().meta({ description: "Id of a file; the page starts after it." }),
  limit: z
    .string()
    .regex(/^(?:[1-9]\d{0,3}|10000)$/, { error: expected("a number from 1 to 10000") })
    .optional()
    .meta({ description: "Maximum number of files per page.", default: "10000" }),
  order: z
    .enum(["asc", "desc"])
    .optional()
    .meta({ description: "Order by time of creation; desc: the newest file first.", default: "desc" }),
  purpose: z.enum(["user_data", "agent_output"]).optional().meta({ description: "Only files with this purpose." }),
});

export const uploadForm = z.strictObject({
  file: z.string().meta({ description: "The file, at most 50 MiB with the form.", format: "binary" }),
  purpose: z.enum(PURPOSES).meta({ description: "user_data: an attachment of requests. The others mean the same." }),
});
