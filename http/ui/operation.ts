// OpenAPI description of the web UI (GET /ui).
import { z } from "zod";
import type { Operation } from "../operation.ts";

export const uiOperation: Operation = {
  id: "showUi",
  tag: "Operations",
  summary: "The web UI",
  description:
    "A page for conversations with the models, and for the operation of the server. It loads nothing from other servers.",
  answers: {
    200: [{ contentType: "text/html", description: "The page" }],
    304: [{ contentType: "text/html", description: "The client has the page" }],
  },
  errors: ["not_found"],
};

export const uiRedirectOperation: Operation = {
  id: "redirectToUi",
  tag: "Operations",
  summary: "Redirect to the web UI",
  answers: { 308: [{ contentType: "text/html", description: "To `/ui/`" }] },
  errors: ["not_found"],
};

export const uiFileOperation: Operation = {
  id: "getUiFile",
  tag: "Operations",
  summary: "A file of the web UI",
  path: z.object({ file: z.string().meta({ description: "File name." }) }),
  answers: {
    200: [
      { contentType: "text/javascript", description: "A script" },
      { contentType: "text/css", description: "A style sheet" },
      { contentType: "text/html", description: "The page" },
      { contentType: "text/plain", description: "The licences of the packages in the page" },
      { contentType: "font/woff2", description: "A font" },
      { contentType: "image/svg+xml", description: "The icon" },
    ],
    304: [{ contentType: "text/javascript", description: "The client has the file" }],
  },
  errors: ["not_found"],
};
