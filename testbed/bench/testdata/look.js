// Looks at a rendered page as a reader does and says what is wrong with it, as a
// list of sentences, and how large it is. It is called with the smallest size of
// text that is readable, in pixels.
((leastText) => {
  const problems = [], root = document.documentElement, wide = root.clientWidth;
  const say = (what, e) => problems.push(what + ": " + (e.outerHTML || e.textContent).replace(/\s+/g, " ").slice(0, 140));
  const box = (e) => e.getBoundingClientRect();
  const colour = (text) => { const n = (text.match(/[\d.]+/g) || []).map(Number); return n.length === 3 ? [...n, 1] : n; };
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = colour(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255, 1]; };

  if (root.scrollWidth > wide) problems.push("the document is " + root.scrollWidth + " px wide on a screen of " + wide);

  // Only what scrolls by itself may reach beyond the screen.
  for (const e of document.body.querySelectorAll("*")) {
    const b = box(e);
    if (b.width > 0 && (b.right > wide + 1 || b.left < -1) && !e.parentElement.closest(".wide")) say("reaches beyond the screen (" + Math.round(b.right) + " px)", e);
  }

  let smallest = Infinity, texts = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, e = node.parentElement, style = getComputedStyle(e);
    if (!node.data.trim() || e.localName === "title" || e.localName === "style" || !e.checkVisibility()) continue;
    texts++;
    const drawn = e instanceof SVGElement;
    const size = parseFloat(style.fontSize) * (drawn ? e.getScreenCTM().a : 1);
    smallest = Math.min(smallest, size);
    if (size < leastText) say("text of " + size.toFixed(1) + " px", e);
    const c = contrast(colour(drawn ? style.fill : style.color), behind(e));
    if (c < 4.5) say("text with a contrast of " + c.toFixed(1), e);
  }

  const plots = [...document.querySelectorAll("figure")].map((f) => {
    const shown = [...f.querySelectorAll(".bar, .dot")].filter((e) => {
      const b = box(e), style = getComputedStyle(e);
      if (b.width <= 0 || b.height <= 0) return false;
      // A hollow point is seen by its outline.
      const ink = e.matches(".bar") ? style.backgroundColor : e.matches(".hollow") ? style.stroke : style.fill;
      const c = contrast(colour(ink), behind(e.parentElement));
      if (c < 3) say("mark with a contrast of " + c.toFixed(1), e);
      return c >= 1.5;
    });
    if (!shown.length) say("plot without a visible mark", f);
    for (const e of f.querySelectorAll(".bar, .whisker")) {
      const b = box(e), t = box(e.parentElement);
      if (b.left < t.left - 1.5 || b.right > t.right + 1.5) say("bar beyond its track", e);
    }
    return { title: (f.querySelector("figcaption") || f).textContent, marks: shown.length };
  });

  for (const svg of document.querySelectorAll("svg")) {
    const s = box(svg), labels = [...svg.querySelectorAll("text")];
    if (s.width < 100 || s.height < 60) say("drawing of " + s.width + " x " + s.height + " px", svg);
    for (const e of svg.querySelectorAll("text, circle, polyline, polygon, line")) {
      const b = box(e);
      if (b.left < s.left - 1 || b.right > s.right + 1 || b.top < s.top - 1 || b.bottom > s.bottom + 1) say("cut off at the edge of its drawing", e);
    }
    for (const e of svg.querySelectorAll("polyline, line")) {
      const b = box(e);
      if (b.width <= 0 || getComputedStyle(e).stroke === "none") say("curve that is not drawn", e);
    }
    labels.forEach((a, i) => labels.slice(i + 1).forEach((b) => {
      const p = box(a), q = box(b);
      if (p.left < q.right && q.left < p.right && p.top + 2 < q.bottom && q.top + 2 < p.bottom) say("texts over each other, with \"" + b.textContent + "\"", a);
    }));
  }

  // A text that is wider than its box runs over its neighbour.
  for (const e of document.querySelectorAll(".row > div, .card, li, p, h1, h2, h3, h4, td, figcaption"))
    if (e.checkVisibility() && e.scrollWidth > e.clientWidth + 1) say("wider than its box", e);

  const height = Math.ceil(Math.max(root.scrollHeight, document.body.scrollHeight));
  return { problems, plots, texts, smallest: Number.isFinite(smallest) ? smallest : 0, height, background: behind(document.body) };
})
