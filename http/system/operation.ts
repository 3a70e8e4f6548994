// OpenAPI description of the system routes.
import { jsonAnswer, type Operation } from "../operation.ts";
import { diagnosisSchema, systemInfoSchema } from "./schemas.ts";

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
