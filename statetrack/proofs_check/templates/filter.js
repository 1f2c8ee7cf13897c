"use strict";
(function () {
  const form = document.getElementById("filter");
  const words = document.getElementById("words");
  const kind = document.getElementById("kind");
  const shown = document.getElementById("shown");
  const rows = Array.from(document.querySelectorAll("#claims tbody tr"), function (row) {
    return { row: row, text: row.textContent.toLowerCase(), verdict: row.dataset.verdict };
  });

  function update() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const one of rows) {
      const fits =
        (kind.value === "" || one.verdict === kind.value) &&
        wanted.every(function (word) { return one.text.includes(word); });
      one.row.hidden = !fits;
      count += fits ? 1 : 0;
    }
    shown.textContent = count + " of " + rows.length + " shown";
  }

  form.hidden = false;
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  words.addEventListener("input", update);
  kind.addEventListener("change", update);
  update();
})();
