/* Light, dark, or like the system; remembered. Runs before the page is drawn, so that it does not flash in
 * the other theme. */
(() => {
  const choices = ["auto", "light", "dark"];
  let choice = "auto";
  try {
    choice = localStorage.getItem("weir-theme") || "auto";
  } catch {
    /* storage is blocked: the choice lasts as long as the page */
  }
  const show = () => {
    if (choice === "auto") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", choice);
    const button = document.getElementById("theme");
    if (!button) return;
    button.setAttribute("data-choice", choice);
  };
  if (!choices.includes(choice)) choice = "auto";
  show();
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", () => {
      choice = choices[(choices.indexOf(choice) + 1) % choices.length];
      try {
        localStorage.setItem("weir-theme", choice);
      } catch {
        /* as above */
      }
      show();
    });
  });
})();
