"""What a visitor sees before Gradio's scripts are there: the wordmark, and where the panels will stand.

It is part of the HTML (first_script.py inserts it), so the first paint waits for no script. js/main.js takes it away
when the panels stand in its place; if that never happens it ends by itself, and shows what Gradio has to say.
Colours and sizes are those of css/tokens.css and css/layout.css, which are not loaded yet.
"""

from studio.ui.icons import MARK

ELEMENT_ID = "lu-first"
GIVES_UP_S = 20

_STYLE = f"""
#lu-first {{
  --page: #f3f3f1; --surface: #ffffff; --line: rgb(23 24 26 / 9%); --text: #191a1d;
  position: fixed; inset: 0; z-index: 1000; display: grid; background: var(--page); color: var(--text);
  grid-template: 52px 1fr / 344px 1fr 268px; animation: lu-first-ends 0s {GIVES_UP_S}s forwards;
}}
[data-theme="dark"] #lu-first {{
  --page: #0b0c0e; --surface: #131417; --line: rgb(255 255 255 / 7%); --text: #eeeff1;
}}
#lu-first > div {{ background: var(--surface); border: 0 solid var(--line); }}
#lu-first > :nth-child(1) {{
  grid-column: 1 / -1; border-bottom-width: 1px; display: flex; align-items: center; gap: 10px; padding: 0 18px;
  font: 640 16px/1 "Inter", system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; letter-spacing: -0.022em;
}}
#lu-first > :nth-child(1) svg {{ width: 21px; height: 21px; }}
#lu-first > :nth-child(2) {{ border-right-width: 1px; }}
#lu-first > :nth-child(3) {{ grid-column: 3; border-left-width: 1px; }}
@media (max-width: 1239px) {{
  #lu-first {{ grid-template-columns: 332px 1fr; }}
  #lu-first > :nth-child(3) {{ display: none; }}
}}
@media (max-width: 819px) {{
  #lu-first {{ grid-template-columns: 1fr; }}
  #lu-first > :nth-child(2) {{ display: none; }}
}}
@keyframes lu-first-ends {{ to {{ visibility: hidden; }} }}
"""

HTML = (
    f'<style>{_STYLE}</style><div id="{ELEMENT_ID}" aria-hidden="true">'
    f"<div>{MARK}<span>Lumesh</span></div><div></div><div></div></div>"
)
