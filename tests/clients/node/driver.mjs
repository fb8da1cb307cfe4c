// The clients for Node, spoken to like the drivers in Python: node driver.mjs openai|ai
import { createInterface } from "node:readline";

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";

globalThis.AI_SDK_LOG_WARNINGS = false;

const PROMPT = "What is the weather in Kinlochleven?";
const PARAMETERS = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city"],
};
const NAMED = { name: "weather", description: "The weather of a city.", parameters: PARAMETERS };

const failed = (answer, kind, message) =>
  Object.assign(answer, { ok: false, error_type: kind, error: String(message) });

// --- the official SDK ---------------------------------------------------------------------------------------------

const sdk = (asked) =>
  new OpenAI({ baseURL: asked.base_url, apiKey: asked.key, maxRetries: 0, timeout: 20_000 });
const messages = [{ role: "user", content: PROMPT }];
const chatTools = (asked) =>
  asked.mode.includes("tools") ? { tools: [{ type: "function", function: NAMED }] } : {};
const responsesTools = (asked) =>
  asked.mode.includes("tools") ? { tools: [{ type: "function", strict: false, ...NAMED }] } : {};
const shownCall = (call) => ({ id: call.id, name: call.function.name, arguments: call.function.arguments });

async function openaiChat(asked, answer) {
  const whole = await sdk(asked).chat.completions.create({ model: asked.model, messages, ...chatTools(asked) });
  const [choice] = whole.choices;
  answer.text = choice.message.content ?? "";
  answer.reasoning = choice.message.reasoning_content ?? "";
  answer.finish = choice.finish_reason;
  answer.tool_calls = (choice.message.tool_calls ?? []).map(shownCall);
  answer.usage = whole.usage ?? null;
}

async function openaiChatStream(asked, answer) {
  const stream = await sdk(asked).chat.completions.create({
    model: asked.model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    ...chatTools(asked),
  });
  for await (const chunk of stream) {
    answer.usage = chunk.usage ?? answer.usage;
    for (const choice of chunk.choices) {
      answer.text += choice.delta.content ?? "";
      answer.reasoning += choice.delta.reasoning_content ?? "";
      answer.finish = choice.finish_reason ?? answer.finish;
      for (const call of choice.delta.tool_calls ?? []) {
        const kept = (answer.tool_calls[call.index] ??= { id: call.id, name: "", arguments: "" });
        kept.name += call.function?.name ?? "";
        kept.arguments += call.function?.arguments ?? "";
      }
    }
  }
}

async function openaiChatHelper(asked, answer) {
  const runner = sdk(asked).chat.completions.stream({ model: asked.model, messages });
  runner.on("content", (delta) => (answer.text += delta));
  const whole = await runner.finalChatCompletion();
  answer.finish = whole.choices[0].finish_reason;
}

function showResponse(response, answer) {
  const reason = response.incomplete_details?.reason;
  answer.finish = reason ? `${response.status}: ${reason}` : response.status;
  answer.usage = response.usage ?? null;
  for (const item of response.output) {
    if (item.type === "function_call")
      answer.tool_calls.push({ id: item.call_id, name: item.name, arguments: item.arguments });
    if (item.type === "message") answer.text += item.content.map((part) => part.text ?? "").join("");
  }
  if (response.status === "failed") failed(answer, "status", response.error?.message);
}

async function openaiResponses(asked, answer) {
  showResponse(
    await sdk(asked).responses.create({ model: asked.model, input: PROMPT, ...responsesTools(asked) }),
    answer,
  );
}

async function showEvents(stream, answer) {
  let said = "";
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") said += event.delta;
    if (["response.completed", "response.incomplete", "response.failed"].includes(event.type))
      showResponse(event.response, answer);
    if (event.type === "error") failed(answer, "event", event.message);
    answer.text = said;
  }
}

async function openaiResponsesStream(asked, answer) {
  const body = { model: asked.model, input: PROMPT, stream: true, ...responsesTools(asked) };
  await showEvents(await sdk(asked).responses.create(body), answer);
}

async function openaiResume(asked, answer) {
  const api = sdk(asked).responses;
  const begun = await api.create({ model: asked.model, input: PROMPT, stream: true, store: true, background: true });
  let id;
  for await (const event of begun) {
    id = event.response.id;
    break;
  }
  const numbers = [];
  const numbered = async function* (stream) {
    for await (const event of stream) {
      numbers.push(event.sequence_number);
      yield event;
    }
  };
  const cursor = asked.starting_after == null ? {} : { starting_after: asked.starting_after };
  const rest = await api.retrieve(id, { stream: true, ...cursor });
  await showEvents(numbered(rest), answer);
  answer.usage = { numbers };
}

// --- the Vercel AI SDK --------------------------------------------------------------------------------------------

function vercel(asked) {
  const settings = { baseURL: asked.base_url, apiKey: asked.key, name: "headrace" };
  const model = asked.mode.startsWith("responses")
    ? createOpenAI(settings).responses(asked.model)
    : createOpenAICompatible({ ...settings, includeUsage: true }).chatModel(asked.model);
  const tools = asked.mode.includes("tools")
    ? { weather: tool({ description: NAMED.description, inputSchema: jsonSchema(PARAMETERS) }) }
    : undefined;
  return { model, tools, prompt: PROMPT, maxRetries: 0, abortSignal: AbortSignal.timeout(20_000) };
}

const vercelCall = (call) => ({
  id: call.toolCallId,
  name: call.toolName,
  arguments: JSON.stringify(call.input),
});

async function vercelWhole(asked, answer) {
  const whole = await generateText(vercel(asked));
  answer.text = whole.text;
  answer.reasoning = whole.reasoningText ?? "";
  answer.finish = whole.finishReason;
  answer.tool_calls = whole.toolCalls.map(vercelCall);
  answer.usage = whole.usage;
}

async function vercelStream(asked, answer) {
  const result = streamText({ ...vercel(asked), onError: () => {} });
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") answer.text += part.text;
    if (part.type === "reasoning-delta") answer.reasoning += part.text;
    if (part.type === "tool-call") answer.tool_calls.push(vercelCall(part));
    if (part.type === "error") failed(answer, part.error?.name ?? "error part", part.error?.message ?? JSON.stringify(part.error));
    if (part.type === "finish") {
      answer.finish = part.finishReason;
      answer.usage = part.totalUsage;
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------

const CLIENTS = {
  openai: {
    chat: openaiChat,
    "chat-stream": openaiChatStream,
    "chat-helper": openaiChatHelper,
    "chat-tools": openaiChat,
    "chat-tools-stream": openaiChatStream,
    responses: openaiResponses,
    "responses-stream": openaiResponsesStream,
    "responses-tools": openaiResponses,
    "responses-tools-stream": openaiResponsesStream,
    resume: openaiResume,
  },
  ai: {
    chat: vercelWhole,
    "chat-stream": vercelStream,
    "chat-tools": vercelWhole,
    "chat-tools-stream": vercelStream,
    responses: vercelWhole,
    "responses-stream": vercelStream,
    "responses-tools": vercelWhole,
    "responses-tools-stream": vercelStream,
  },
};

const modes = CLIENTS[process.argv[2]];
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
console.log = console.error;
process.on("unhandledRejection", (error) => console.error("unhandled", error));
say(Object.keys(modes).sort());
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const answer = {
    ok: true, text: "", reasoning: "", finish: null, tool_calls: [], usage: null, error: null, error_type: null,
  };
  try {
    await modes[asked.mode](asked, answer);
  } catch (error) {
    failed(answer, error?.name === "Error" ? error.constructor.name : (error?.name ?? "thrown"), error?.message ?? error);
  }
  say(answer);
}
