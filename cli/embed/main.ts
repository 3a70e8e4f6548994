// Main entry of the package: the embedding API.
export type { ModelSettings, TroupeSettings } from "../config/settings.ts";
export type { ExtraRoute } from "./extra-routes.ts";
export type { Router, RouterOptions } from "./router.ts";
export { createTroupe, type Troupe } from "./troupe.ts";
