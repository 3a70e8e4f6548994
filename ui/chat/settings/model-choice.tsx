// Choice of the models that answer: one, or several side by side.
import { Button } from "../../base/button.tsx";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import type { OpenConversation } from "../../conversations/open-conversation.ts";
import { models, shortName } from "../../server/models.ts";
import { changeSettings } from "../current.ts";

const mostModels = 4;

export function ModelChoice({ open }: { readonly open: OpenConversation }) {
  const { model, others } = open.conversation.value.settings;
  const choose = (index: number, id: string): void => {
    const next = index === 0 ? { model: id } : { others: others.map((one, i) => (i === index - 1 ? id : one)) };
    changeSettings(next).catch(notifyError);
  };
  const known = (models.value ?? []).map(({ id }) => id);
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
            {(known.includes(chosen) || chosen === "" ? known : [...known, chosen]).map((id) => (
              <option key={id} value={id}>
                {shortName(id)}
              </option>
            ))}
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
