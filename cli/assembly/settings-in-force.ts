// Settings in force: all settings of a server as GET /v1/system/config shows them, each with its origin and without secrets.
import type { SettingInForce } from "../../http/system/settings.ts";
import { withoutSecrets } from "../../runtime/log/secrets.ts";
import type { Config, Origin } from "../config/config.ts";
import type { Source } from "../config/given.ts";
import { appliesTo, groups, isPerModel, type KeyEntry, keyEntries } from "../config/keys.ts";
import { withoutTokens } from "../config/kinds.ts";

/** Value that is shown in place of a secret. */
const SET = "set";
const userInfo = /(?<=[a-z][a-z0-9+.-]*:\/\/)[^/?#\s"@]*@/gi;

/** Returns the settings that the command accepts and that are implemented, in the order of the table of keys. */
export function settingsInForce(config: Config): SettingInForce[] {
  const entries = keyEntries.filter((entry) => appliesTo(entry, config.command) && !entry.key.planned);
  return entries.flatMap((entry) =>
    isPerModel(entry.group)
      ? config.models.map((_, model) => settingOf(config, entry, model))
      : [settingOf(config, entry, null)],
  );
}

function settingOf(config: Config, entry: KeyEntry, model: number | null): SettingInForce {
  const origin = originOf(config.origins, entry, model);
  const source: Source = origin?.source ?? "default";
  return {
    key: entry.name,
    section: groups[entry.group].section ?? "",
    model: model === null ? null : (config.models[model]?.id ?? null),
    value: shown(valueIn(config, entry, model), entry.key.secret === true && source !== "default"),
    source,
    name: origin?.name ?? null,
    place: source === "file" ? (origin?.place ?? null) : null,
  };
}

/** Returns the origin of a setting. A setting that a model inherits has the origin of the general key. */
function originOf(origins: readonly Origin[], { group, field }: KeyEntry, model: number | null): Origin | undefined {
  const own = origins.find((origin) => origin.group === group && origin.field === field && origin.model === model);
  if (own !== undefined || group !== "models") return own;
  return origins.find((origin) => origin.group === "general" && origin.field === field);
}

/** Reads a value from the Config, in which the general keys and the keys of [[models]] have no section. */
function valueIn(config: Config, { group, field }: KeyEntry, model: number | null): unknown {
  const whole: object = model === null ? config : (config.models[model] ?? {});
  const isFlat = group === "general" || group === "agentic" || group === "models";
  const section: unknown = isFlat ? whole : Reflect.get(whole, group);
  return typeof section === "object" && section !== null ? Reflect.get(section, field) : null;
}

/** Returns a value as JSON without secrets. Secrets that a user has typed in the wrong place are removed too. */
function shown(value: unknown, isSecret: boolean): SettingInForce["value"] {
  if (value === null || value === undefined) return null;
  if (isSecret) return SET;
  const text = withoutTokens(withoutSecrets(JSON.stringify(value))).replaceAll(userInfo, "");
  return JSON.parse(text) as SettingInForce["value"];
}
