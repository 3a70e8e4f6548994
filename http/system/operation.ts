// OpenAPI description of the system routes.
import { z } from "zod";
import { jsonAnswer, type Operation } from "../operation.ts";
import { activeRequestListSchema, cancelledRequestSchema } from "./requests.ts";
import { diagnosisSchema, systemInfoSchema } from "./schemas.ts";
import { settingListSchema } from "./settings.ts";

export const systemInfoOperation: Operation = {
  id: "systemInfo",
  tag: "Operations",
  summary: "The machine, its devices, and this build",
  answers: jsonAnswer(systemInfoSchema, "Current facts"),
  errors: [],
};

export const doctorOperation: Operation = {
  id: "systemDoctor",
  tag: "Operations",
  summary: "Checks for problems of the server on this machine",
  description: "Takes no body. Equivalent to `troupe doctor`.",
  answers: jsonAnswer(diagnosisSchema, "The machine and the checks"),
  errors: ["timeout"],
};

export const systemConfigOperation: Operation = {
  id: "systemConfig",
  tag: "Operations",
  summary: "The settings in force, and where each comes from",
  answers: jsonAnswer(settingListSchema, "All settings of the server and of its models"),
  errors: [],
};

export const listRequestsOperation: Operation = {
  id: "listRequests",
  tag: "Operations",
  summary: "The inference requests in progress, of all clients",
  description:
    "A request is in the list from the end of its validation until its generation or embedding has ended, background responses included.",
  answers: jsonAnswer(activeRequestListSchema, "The requests"),
  errors: [],
};

export const cancelRequestOperation: Operation = {
  id: "cancelRequest",
  tag: "Operations",
  summary: "Cancel an inference request in progress",
  description:
    "Takes no body. The engine stops before its next step. The client of the request gets the error `cancelled`, in its stream if that has begun. A background response ends as cancelled. If several requests have the id, because their clients chose it, all are cancelled.",
  path: z.strictObject({ request_id: z.string().meta({ description: "Id in the list of requests." }) }),
  answers: jsonAnswer(cancelledRequestSchema, "The request ends"),
  errors: ["not_found"],
};
