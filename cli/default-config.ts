// Settings with a default model: if the settings name no model, a model that suits this machine is chosen.
import { smallestModel } from "../engines/files/hub/catalog.ts";
import { chooseDefaultModel } from "../engines/files/hub/default-model.ts";
import { availableMemory } from "../runtime/host/memory.ts";
import { type Config, type ConfigRequest, namesModel, resolveConfig } from "./config/config.ts";

/** Resolves the settings, with the default model if they name none. */
export async function configWithDefault(given: Omit<ConfigRequest, "defaultModel">): Promise<Config> {
  const request = { ...given, defaultModel: smallestModel };
  // The settings are checked before the default model is chosen, because the choice may send a network request.
  const config = resolveConfig(request);
  if (namesModel(request)) return config;
  const { tokenSource, models } = config;
  const hfCache = models[0]?.device.hfCache ?? null;
  const defaultModel = await chooseDefaultModel(availableMemory(), { tokenSource, hfCache });
  return defaultModel === smallestModel ? config : resolveConfig({ ...request, defaultModel });
}
