// An agent of a few lines on the Vercel AI SDK: asks, lets the model read files, prints all the model's text.
// Arguments: the folder the packages are in, the provider package, the function (streamText or generateText), the base
// URL and the question. With HTTPS_PROXY set it goes through that proxy, as node's fetch on its own does not.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

const [folder, provider, ask, baseURL, prompt] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const { EnvHttpProxyAgent, setGlobalDispatcher } = require("undici");
const ai = require("ai");

const settings = { baseURL, apiKey: process.env.DEEPSEEK_API_KEY };
const models = {
  "openai-compatible": (made) => made.createOpenAICompatible({ ...settings, name: "deepseek" })("deepseek-flash"),
  deepseek: (made) => made.createDeepSeek(settings)("deepseek-flash"),
  openai: (made) => made.createOpenAI(settings).responses("deepseek-flash"),
  anthropic: (made) => made.createAnthropic(settings)("deepseek-flash"),
};

const read_file = ai.tool({
  description: "Read a file",
  inputSchema: ai.jsonSchema({
    type: "object",
    properties: { path: { type: "string" } },
    required: ["path"],
  }),
  execute: ({ path }) => readFile(path, "utf8"),
});

setGlobalDispatcher(new EnvHttpProxyAgent());
const result = ai[ask]({
  model: models[provider](require(`@ai-sdk/${provider}`)),
  tools: { read_file },
  stopWhen: ai.stepCountIs(4),
  prompt,
});
if (ask === "streamText") {
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") process.stdout.write(part.text);
    if (part.type === "error") throw part.error;
  }
} else {
  for (const step of (await result).steps) process.stdout.write(step.text);
}
