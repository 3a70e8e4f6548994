// Main entry of the package: the embedding API.
export type { ModelSettings, TroupeSettings } from "../config/settings.ts";
export type { ExtraRoute } from "./extra-routes.ts";
export type { Router, RouterOptions } from "./router.ts";
export {
  type IllustratedResult,
  type ObjectSchema,
  type Tool,
  type ToolArguments,
  type ToolContext,
  type ToolDefinition,
  type ToolResult,
  type ToolSchema,
  tool,
} from "./tools/tool.ts";
export { createTroupe, type EmbedSettings, type Troupe } from "./troupe.ts";
