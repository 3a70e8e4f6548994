// Query parameters of the routes for one stored response.
import { z } from "zod";
import { expected } from "../../issues.ts";

const flag = z.enum(["true", "false"]).optional();
const included = z
  .string()
  .optional()
  .meta({ description: "Ignored: everything is always included", support: "ignored" });

export const retrieveQuery = z.object({
  stream: flag.meta({
    description: "Stream the events of a response that was created with background and stream.",
    default: "false",
  }),
  starting_after: z
    .string()
    .regex(/^\d{1,15}$/, { error: expected("the number of an event") })
    .optional()
    .meta({ description: "With stream: start after the event with this sequence number." }),
  include: included,
  include_obfuscation: included,
});

export const inputItemsQuery = z.object({
  limit: z
    .string()
    .regex(/^(?:[1-9]\d?|100)$/, { error: expected("a number from 1 to 100") })
    .optional()
    .meta({ description: "Maximum number of items per page.", default: "20" }),
  order: z
    .enum(["asc", "desc"])
    .optional()
    .meta({ description: "Order of the items; desc: the last item first.", default: "desc" }),
  after: z.string().max(256).optional().meta({ description: "Id of an item; the page starts after it." }),
  include: included,
});
