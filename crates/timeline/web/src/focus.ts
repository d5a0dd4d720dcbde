// The keyboard stays where it is when a part of the page is made again.

/** Makes the content of an element again. What had the focus is found by its place. */
export function keepFocus(element: HTMLElement, make: () => void): void {
  const all = (): HTMLElement[] => [...element.querySelectorAll<HTMLElement>("button, input")];
  const place = all().indexOf(document.activeElement as HTMLElement);
  make();
  if (place >= 0) {
    all()[place]?.focus();
  }
}
