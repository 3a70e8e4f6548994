// Current settings: the schema of GET /v1/system/config. cli/ builds the values, because only cli/ knows the table of settings.
import { z } from "zod";

export const settingSchema = z
  .strictObject({
    key: z.string().meta({ description: "Name of the key in a settings file." }),
    section: z.string().meta({ description: 'Section of the key in a settings file, such as "server"; "": the top.' }),
    model: z.string().nullable().meta({ description: "Model to which the setting applies; null: the whole server." }),
    value: z.unknown().meta({
      description:
        'Value in force; null: unset. A secret that is set is "set", and the user name and password of a URL are left out.',
    }),
    source: z.enum(["default", "environment", "file", "flag", "program"]).meta({
      description: "Where the value comes from. `program`: the program that troupe is embedded in.",
    }),
    name: z.string().nullable().meta({ description: "Flag, variable or key that set the value; null with `default`." }),
    place: z.string().nullable().meta({ description: "With `file`: the file and line." }),
  })
  .meta({ id: "Setting" });

export type SettingInForce = Readonly<z.output<typeof settingSchema>>;

export const settingListSchema = z.strictObject({ object: z.literal("list"), data: z.array(settingSchema) });
