// Names for screen readers that the theme leaves out: of the search, and of the buttons of each block of code. And words
// of code in a text that stay whole: a browser would break an option behind its hyphens, `--` from `nodes`.
addEventListener("load", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
  document.querySelectorAll(".md-code__nav").forEach((nav, number) => nav.setAttribute("aria-label", `Code ${number + 1}`))
  document.querySelectorAll(".md-typeset :not(pre) > code").forEach((code) => {
    if (code.children.length || !code.textContent.includes("-")) return
    code.replaceChildren(...code.textContent.split(/(\s+)/).map((word) => {
      if (word.length > 28 || !word.includes("-")) return word
      const whole = document.createElement("span")
      whole.className = "whole"
      whole.textContent = word
      return whole
    }))
  })
  document.querySelectorAll("pre > code, p:has(> img), .md-typeset__scrollwrap").forEach((part) => {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0 // on a phone; the keyboard scrolls it, too
  })
})
