"use strict";
// Where the explorer's data come from: here the server of ig2 serve. files.js answers the same questions in an exported site.

async function ask(path, signal) {
  const answer = await fetch(path, { signal }).catch((error) => {
    throw signal?.aborted ? error : Object.assign(new Error(LOST), { isLost: true });
  });
  const content = await answer.json().catch((error) => {
    if (signal?.aborted) throw error; // other filters were chosen while this was on its way
    return { error: `the server answered ${answer.status}` };
  });
  if (!answer.ok) throw new Error(content.error ?? content.detail?.[0]?.msg ?? `the server answered ${answer.status}`);
  return content;
}

const LOST = "The server does not answer: is ig2 serve still running?";
const FORMATS = ["csv", "parquet", "html", "zip"]; // of a selection
const pictureAddress = ({ id }) => `/picture?${new URLSearchParams({ id })}`;

// Returns the name and the content of a selection as a file.
async function fetchExport(format, question) {
  const answer = await fetch(`/export?${new URLSearchParams({ ...Object.fromEntries(question), format })}`);
  if (!answer.ok) throw new Error((await answer.json()).error);
  return [decodeURIComponent(answer.headers.get("content-disposition").split("''")[1]), await answer.blob()];
}
