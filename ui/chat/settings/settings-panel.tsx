// Settings panel of a conversation: system prompt, sampling, reasoning, output format, and presets.
import { useState } from "preact/hooks";
import { Button } from "../../base/button.tsx";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import { preference } from "../../base/preference.ts";
import type { OpenConversation } from "../../conversations/open-conversation.ts";
import type { ChatSettings } from "../../conversations/records.ts";
import { models } from "../../server/models.ts";
import { changeSettings } from "../current.ts";
import { SchemaForm } from "./schema-form.tsx";
import { Check } from "./tool-choice.tsx";

type Preset = Partial<ChatSettings>;

const presets = preference<Readonly<Record<string, Preset>>>(
  "presets",
  {},
  (value): value is Record<string, Preset> => typeof value === "object" && value !== null,
);

const efforts = ["", "off", "low", "medium", "high"] as const;

export function SettingsPanel({ open, onClose }: { readonly open: OpenConversation; readonly onClose: () => void }) {
  const { settings } = open.conversation.value;
  const change = (changes: Preset): void => {
    changeSettings(changes).catch(notifyError);
  };
  return (
    <aside class="panel" aria-label={t("settings")}>
      <header class="panel-head">
        <h2>{t("settings")}</h2>
        <Button icon="close" label={t("close")} onPress={onClose} />
      </header>
      <Presets settings={settings} onChoose={change} />
      <label class="field">
        <span>{t("systemPrompt")}</span>
        <textarea
          rows={4}
          value={settings.system}
          onChange={({ currentTarget }) => change({ system: currentTarget.value })}
        />
      </label>
      <NumberField
        label={t("temperature")}
        value={settings.temperature}
        min={0}
        max={2}
        step={0.05}
        onChange={(temperature) => change({ temperature })}
      />
      <NumberField
        label="top_p"
        value={settings.topP}
        min={0}
        max={1}
        step={0.01}
        onChange={(topP) => change({ topP })}
      />
      <NumberField label="top_k" value={settings.topK} min={0} step={1} onChange={(topK) => change({ topK })} />
      <NumberField
        label="min_p"
        value={settings.minP}
        min={0}
        max={1}
        step={0.01}
        onChange={(minP) => change({ minP })}
      />
      <NumberField
        label={t("repetitionPenalty")}
        value={settings.repetitionPenalty}
        min={0}
        max={2}
        step={0.01}
        onChange={(repetitionPenalty) => change({ repetitionPenalty })}
      />
      <NumberField
        label={t("maxTokens")}
        value={settings.maxTokens}
        min={1}
        step={1}
        onChange={(maxTokens) => change({ maxTokens })}
      />
      <NumberField label={t("seed")} value={settings.seed} min={0} step={1} onChange={(seed) => change({ seed })} />
      <label class="field">
        <span>{t("effort")}</span>
        <select value={settings.effort} onChange={({ currentTarget }) => change({ effort: currentTarget.value })}>
          {efforts.map((effort) => (
            <option key={effort} value={effort}>
              {effort === "" ? t("default") : effort}
            </option>
          ))}
        </select>
      </label>
      <label class="field">
        <span>{t("adapter")}</span>
        <input
          type="text"
          list="adapters"
          value={settings.adapter}
          onChange={({ currentTarget }) => change({ adapter: currentTarget.value })}
        />
        <datalist id="adapters">
          {[...new Set((models.value ?? []).flatMap(({ root }) => (typeof root === "string" ? root : [])))].map(
            (alias) => (
              <option key={alias} value={alias} />
            ),
          )}
        </datalist>
      </label>
      <Check label={t("collectLogprobs")} isChecked={settings.logprobs} onChange={(logprobs) => change({ logprobs })} />
      <SchemaForm schema={settings.schema} onChange={(schema) => change({ schema })} />
    </aside>
  );
}

interface NumberProps {
  readonly label: string;
  readonly value: number | null;
  readonly min: number;
  readonly max?: number;
  readonly step: number;
  readonly onChange: (value: number | null) => void;
}

/**
 * Number field. An empty field means the server's default. The browser rejects a number out of range. The number is taken when the
 * user leaves the field: `onChange` would take the beginning of a number, as preact/compat calls it after each key.
 */
function NumberField({ label, value, min, max, step, onChange }: NumberProps) {
  return (
    <label class="field">
      <span>{label}</span>
      <input
        type="number"
        min={min}
        {...(max === undefined ? {} : { max })}
        step={step}
        placeholder={t("default")}
        value={value ?? ""}
        onChangeCapture={({ currentTarget }) => {
          if (!currentTarget.reportValidity()) return;
          onChange(currentTarget.value === "" ? null : currentTarget.valueAsNumber);
        }}
      />
    </label>
  );
}

function Presets({
  settings,
  onChoose,
}: {
  readonly settings: ChatSettings;
  readonly onChoose: (preset: Preset) => void;
}) {
  const [name, setName] = useState("");
  const chosen = presets.value[name];
  const save = (): void => {
    const { model: _model, others: _others, tools: _tools, skills: _skills, ...kept } = settings;
    presets.value = { ...presets.value, [name]: kept };
  };
  const remove = (): void => {
    const { [name]: _gone, ...others } = presets.value;
    presets.value = others;
  };
  return (
    <div class="field presets">
      <label>
        <span>{t("preset")}</span>
        <input
          type="text"
          list="presets"
          value={name}
          placeholder={t("presetHint")}
          onInput={({ currentTarget }) => setName(currentTarget.value)}
        />
      </label>
      <datalist id="presets">
        {Object.keys(presets.value).map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
      <div class="actions">
        <button type="button" class="button" disabled={chosen === undefined} onClick={() => onChoose(chosen as Preset)}>
          {t("apply")}
        </button>
        <button type="button" class="button" disabled={name.trim() === ""} onClick={save}>
          {t("save")}
        </button>
        <button type="button" class="button" disabled={chosen === undefined} onClick={remove}>
          {t("delete")}
        </button>
      </div>
    </div>
  );
}
