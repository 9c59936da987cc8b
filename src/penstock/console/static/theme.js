// Before the page is painted: the viewer's theme, if one was chosen.
(() => {
  try {
    const theme = localStorage.getItem("penstock-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* no storage: the system's theme */ }
})();
