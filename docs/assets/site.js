// What the theme builds while a page is read gets what screen readers and keyboards need.
const mend = () => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0;
  document.querySelectorAll(".md-code__nav").forEach((nav, i) => {
    nav.setAttribute("aria-label", `Block ${i + 1}`);
  });
};
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
mend();
