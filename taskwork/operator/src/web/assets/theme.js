// Sets the chosen theme before the first paint, so that the page does not flash.
try {
  const theme = localStorage.getItem("taskwork-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without permission to store, the theme of the system is used.
}
