// Choice of the server's tools for the conversation.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Button } from "../../base/button.tsx";
import { Dialog } from "../../base/dialog.tsx";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import type { TextKey } from "../../base/texts/en.ts";
import type { OpenConversation } from "../../conversations/open-conversation.ts";
import { ask } from "../../server/client.ts";
import { models } from "../../server/models.ts";
import { changeSettings } from "../current.ts";

const builtIn: readonly (readonly [name: string, key: TextKey])[] = [
  ["code", "toolCode"],
  ["shell", "toolShell"],
  ["search", "toolSearch"],
];

interface Skill {
  readonly id: string;
  readonly name: string;
  readonly description?: string;
}

const isOpen = signal(false);
const skills = signal<readonly Skill[]>([]);

export function ToolChoice({ open }: { readonly open: OpenConversation }) {
  const { tools } = open.conversation.value.settings;
  return (
    <>
      <Button
        icon="tool"
        label={tools.length === 0 ? t("tools") : t("toolsChosen", { count: tools.length })}
        isPressed={tools.length > 0}
        onPress={() => (isOpen.value = true)}
      />
      {isOpen.value && <ToolDialog open={open} />}
    </>
  );
}

function ToolDialog({ open }: { readonly open: OpenConversation }) {
  const { tools, skills: chosen, asksApproval } = open.conversation.value.settings;
  useEffect(() => {
    ask<{ readonly data: readonly Skill[] }>("v1/skills")
      .then(({ data }) => (skills.value = data))
      .catch(() => {
        // A server without an agent loop has no skills.
      });
  }, []);
  const change = (settings: Parameters<typeof changeSettings>[0]): void => {
    changeSettings(settings).catch(notifyError);
  };
  const connected = Number(models.value?.[0]?.mcp_tools_count ?? 0);
  return (
    <Dialog title={t("tools")} onClose={() => (isOpen.value = false)}>
      <fieldset>
        <legend>{t("toolsOfServer")}</legend>
        {builtIn.map(([name, key]) => (
          <Check
            key={name}
            label={t(key)}
            isChecked={tools.includes(name)}
            onChange={(isOn) => change({ tools: isOn ? [...tools, name] : tools.filter((one) => one !== name) })}
          />
        ))}
        {connected > 0 && <p class="quiet">{t("mcpTools", { count: connected })}</p>}
      </fieldset>
      {skills.value.length > 0 && (
        <fieldset>
          <legend>{t("skills")}</legend>
          {skills.value.map(({ id, name }) => (
            <Check
              key={id}
              label={name}
              isChecked={chosen.includes(id)}
              onChange={(isOn) => change({ skills: isOn ? [...chosen, id] : chosen.filter((one) => one !== id) })}
            />
          ))}
        </fieldset>
      )}
      <Check label={t("askBeforeCalls")} isChecked={asksApproval} onChange={(isOn) => change({ asksApproval: isOn })} />
    </Dialog>
  );
}

interface CheckProps {
  readonly label: string;
  readonly isChecked: boolean;
  readonly onChange: (isOn: boolean) => void;
}

export function Check({ label, isChecked, onChange }: CheckProps) {
  return (
    <label class="check">
      <input type="checkbox" checked={isChecked} onChange={({ currentTarget }) => onChange(currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}
