// Choice of the models that answer: one or several side by side, on the server or in this browser.
import { useEffect } from "preact/hooks";
import { Button } from "../../base/button.tsx";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import type { OpenConversation } from "../../conversations/open-conversation.ts";
import { keptModels, readKeptModels } from "../../local/gguf-files.ts";
import { keptGpuModels, readKeptGpuModels } from "../../local/gpu-files.ts";
import { localId, localName } from "../../local/local-model.ts";
import { models, shortName } from "../../server/models.ts";
import { changeSettings } from "../current.ts";

const mostModels = 4;

export function ModelChoice({ open }: { readonly open: OpenConversation }) {
  const { model, others } = open.conversation.value.settings;
  const choose = (index: number, id: string): void => {
    const next = index === 0 ? { model: id } : { others: others.map((one, i) => (i === index - 1 ? id : one)) };
    changeSettings(next).catch(notifyError);
  };
  useEffect(() => {
    // The browser may deny access to storage. In that case there are no local models.
    if (keptModels.value === null) readKeptModels().catch(() => {});
    if (keptGpuModels.value === null) readKeptGpuModels().catch(() => {});
  }, []);
  const ofServer = (models.value ?? []).map(({ id }) => id);
  const ofBrowser = (keptModels.value ?? []).map(({ name }) => localId(name));
  const ofGpu = (keptGpuModels.value ?? []).map(({ name }) => localId(name, "gpu"));
  return (
    <div class="models">
      {[model, ...others].map((chosen, i) => (
        <span key={i} class="model-choice">
          <select
            aria-label={i === 0 ? t("model") : t("otherModel", { number: i + 1 })}
            value={chosen}
            onChange={({ currentTarget }) => choose(i, currentTarget.value)}
          >
            <option value="">{t("defaultModel")}</option>
            {options(ofServer, localName(chosen) === null ? chosen : "")}
            {group(t("pageLocal"), ofBrowser, localName(chosen)?.device === "cpu" ? chosen : "")}
            {group(t("browserGpu"), ofGpu, localName(chosen)?.device === "gpu" ? chosen : "")}
          </select>
          {i > 0 && (
            <Button
              icon="close"
              label={t("removeModel")}
              onPress={() => void changeSettings({ others: others.filter((_, k) => k !== i - 1) }).catch(notifyError)}
            />
          )}
        </span>
      ))}
      {others.length + 1 < mostModels && (
        <Button
          icon="columns"
          label={t("addModel")}
          onPress={() => void changeSettings({ others: [...others, ""] }).catch(notifyError)}
        />
      )}
    </div>
  );
}

/** Group of the models in this browser; null if there are none. */
function group(label: string, known: readonly string[], chosen: string) {
  if (known.length === 0 && chosen === "") return null;
  return <optgroup label={label}>{options(known, chosen)}</optgroup>;
}

/** Options for the known models and the chosen one, which may no longer exist. */
function options(known: readonly string[], chosen: string) {
  const ids = known.includes(chosen) || chosen === "" ? known : [...known, chosen];
  return ids.map((id) => (
    <option key={id} value={id}>
      {shortName(id)}
    </option>
  ));
}
