// Lays a question's details into the page when it is opened, and shows the questions that have some words.
"use strict";
const questions = [...document.querySelectorAll(".one")], box = document.querySelector("p.filters");
const unpacked = (async () => {
  const text = document.getElementById("details").textContent;
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
})();
questions.forEach((question, at) => question.addEventListener("toggle", async () => {
  if (!question.open || question.children.length > 1) return;
  const html = (await unpacked)[at];
  if (question.children.length === 1) question.insertAdjacentHTML("beforeend", html);
}));
box.hidden = false;
box.querySelector("input").addEventListener("input", ({ target }) => {
  const sought = target.value.trim().toLowerCase();
  for (const question of questions) {
    question.hidden = !question.querySelector("summary").textContent.toLowerCase().includes(sought);
  }
});
