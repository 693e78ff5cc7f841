// Sets the theme that was chosen before the first paint, so that the page does not flash.
try {
  const theme = localStorage.getItem("taskwork-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Where nothing may be stored the system's theme is used.
}
