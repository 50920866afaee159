// The header's menu on narrow screens, where help, theme and language have no room of their own.

import { find } from "../core/dom.js";
import { chooseLanguage, languages } from "../core/language.js";
import { openMenu } from "../core/menu.js";
import { language, t } from "../core/text.js";
import { isDark, toggleTheme } from "../core/theme.js";
import { openHelp } from "./help.js";

export function mountMore() {
  find("lu-more").addEventListener("click", () => {
    const dark = isDark();
    openMenu(
      find("lu-more"),
      [
        { icon: "help", label: t("help.title"), act: openHelp },
        { icon: dark ? "sun" : "moon", label: t(dark ? "theme.light" : "theme.dark"), act: toggleTheme },
        null,
        ...languages().map(({ id, name }) => ({
          label: name,
          isChecked: id === language,
          act: () => chooseLanguage(id),
        })),
      ],
      t("view.more"),
    );
  });
}
