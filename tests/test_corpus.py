"""False positives: megabytes of text that is no leak. No call may come of it, and no character may change.

What is installed where the tests run is read as it is; the rest is generated, so that every machine has it all.
"""

import random
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsml_core.events import Text
from dsml_core.parser import Parser
from tests.feeding import tool_set
from tests.markers import BAR, WORD

SIZE = 5_000_000  # characters, at least
OF_A_KIND = 700_000  # characters of installed files of one kind, at most
FILE = 200_000  # characters of one file, at most
FOLDERS = [sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), sysconfig.get_path("include"), "/usr/share"]
KINDS = ("py", "pyi", "md", "rst", "txt", "js", "ts", "css", "html", "xml", "c", "h", "json", "sh", "pl", "toml", "svg")

TSX = """
export function {Name}Form({{ {name}, onChange }}: Props<{Name}>): JSX.Element {{
  const [{name}State, set] = useState<Record<string, {Name} | null>>({{}});
  const pick = <T,>(x: T | undefined): x is T => x !== undefined && x < {n};
  return (
    <Invoke name="{name}" run={{() => set({{ a: {n} }})}}>
      <Parameter name="{name}" string="{text}">{{{name} < {n} ? <item>{text}</item> : null}}</Parameter>
      <tool-calls of="{name}" /> <Calls>{text}</Calls>
    </Invoke>
  );
}}
"""
XML = """
<project name="{name}"><target><invoke name="{name}" method="get"><parameter name="{text}">{n}</parameter></invoke>
<function><id>{name}</id></function><items><item>{text}</item><item>a &lt; b</item></items></target>
<xs:element name="parameter" type="xs:string" minOccurs="{n}"/><call>{text}</call><name>{name}</name>
<![CDATA[ if (a < b && c | d) {{ <invoke> }} ]]></project>
"""
HTML = """
<!doctype html><html><body><p class="{name}">{text} <b>{n}</b> &amp; <code>&lt;invoke&gt;</code></p><pre>
{text} < {n} | {name}
</pre><script>if (a<b||c>d) document.write("<"+"/parameter>")</script><!-- {text} --></body></html>
"""
SHELL = """
cat <<EOF | tee {name}.txt
<config><parameter name="{name}">{n}</parameter></config>
| {name} | {text} |
EOF
while read -r line; do echo "$line" | grep -v '<|' >> out 2>&1; done < {name}.txt
diff <(sort a) <(sort b) || cat <<< "{text}" && sort <|pipe
"""
MARKDOWN = """
# {Name}

| name | {word} | note |
|------|------|------|
| a < b | {word} | `<invoke>` {text} |
| {name} | {n} | <br> |

Use `<parameter name="{name}">` or the *tool_calls* element; {text}. 1 < 2 | 3 > 2.

```xml
<invoke name="{name}"><parameter name="x">{n}</parameter></invoke>
```

> said {name}: a ` sign and <think of it>

1. {text}
   - [ ] <{name}@example.org>, <https://example.org/{name}?a=1&b=2>
"""
CPP = """
template <class F, class... A> std::invoke_result_t<F, A...> invoke(F &&f) {{ return f(); }}
std::map<std::string, std::vector<Parameter<{Name}>>> {name}; // {text}
if (a < b || c > d) {{ out << "<parameter>" << {n} << std::endl; x = a <: b; }}
"""
JAVA = """
public <T extends Parameter<? super {Name}>> Map<String, List<Item<T>>> {name}(int i) {{
    return i < {n} | i > 2 ? invoke("{text}") : Map.<String, List<Item<T>>>of(); /* <name>{name}</name> */
}}
"""
RUST = """
fn {name}<'a, T: Fn(&'a str) -> Option<{Name}<'a>>>(x: T) -> Result<Vec<u8>, Box<dyn Error>> {{
    let y = a.iter().map(|p| p << {n}).filter(|&i| i < {n} || i > 2); // {text}
    match x {{ Some(n) if n < {n} => Ok(vec![]), _ => Err("<invoke>".into()) }}
}}
"""
GO = """
func {name}(ch <-chan int, out chan<- {Name}) error {{
\tselect {{ case v := <-ch: if v < {n} || v<<1 > {n} {{ out <- {Name}{{"{text}"}} }}; default: }}
\treturn fmt.Errorf("<%s name=%q>", "parameter", `{text}`)
}}
"""
FUNCTIONAL = """
{name} = parse <|> invoke <$> item <* many (char '|') -- {text}
main = text <| toString <| List.map (\\p -> p.name) model.{name}
let x = [| {n}; 2 |] |> Array.map (fun p -> p < {n} || p > 2)
"""
SQL = """
SELECT name AS parameter, a || '|' || b FROM {name} WHERE n < {n} AND m <> 2 AND t LIKE '%<invoke%'; -- {text}
"""
LOG = """
2031-01-0{n} 12:00:0{n}.123 [WARN ] <{name}> |{word}| {text} | took={n}ms | <|end|> status=<none>
{{"level": "info", "msg": "sample <{word}", "parameter": "{name}", "html": "<b>{n}</b>"}}
<14>1 2031-01-01T00:00:0{n}Z host {name} - - [meta seq="{n}"] {text} || retry < {n}
Traceback: File "<stdin>", line {n}, in <module> | <{Name} object at 0x{n}f>
"""
CJK = """
这里的符号{bar}和\uff1c参数\uff1e只是标点{bar}{text}\uff1b调用 invoke 之前要看 parameter。当 a\uff1cb 时{bar}c\uff1ed。
これは{word}という語です。「\uff1c{name}\uff1e」は引用ではない｡ 表{bar}列{bar}値
한국어 문장 <{name}> 과 {bar}{n}{bar} 그리고 tool_calls 라는 낱말.
"""
DIFF = """
--- a/{name}.py
+++ b/{name}.py
@@ -{n},2 +{n},2 @@
-    OPEN = "<{word}"
+    OPEN = "<" + BARS  # {text}
 |  context < {n}
"""
TEX = r"""
\begin{{tabular}}{{|l|r|}} {text} & $\left| x \right| < |y| \le {n}$ \\ \hline <{name}> \end{{tabular}}
"""
TEMPLATES = {
    **{
        "tsx": TSX,
        "xml": XML,
        "html": HTML,
        "shell": SHELL,
        "markdown": MARKDOWN,
        "c++": CPP,
        "java": JAVA,
        "rust": RUST,
    },
    **{"go": GO, "functional": FUNCTIONAL, "sql": SQL, "log": LOG, "cjk": CJK, "diff": DIFF, "tex": TEX},
}
NAMES = ["order", "invoke", "parameter", "item", "calls", "sample", "bash", "read_file", "think", "dsmlike"]
PHRASES = [
    "all is well",
    "one < two",
    "a | b",
    "see <invoke>",
    "it's fine",
    "the tool_calls field",
    "x << 2",
    "50% | ok",
]


def generated(language: str, size: int) -> str:
    """Text of that language, always the same."""
    chosen = random.Random(language)
    parts: list[str] = []
    length = 0
    while length < size:
        name = chosen.choice(NAMES)
        fields = {"name": name, "Name": name.title(), "text": chosen.choice(PHRASES), "n": chosen.randrange(1, 9)}
        parts.append(TEMPLATES[language].format(bar=BAR, word=WORD, **fields))
        length += len(parts[-1])
    return "".join(parts)


def installed(kind: str) -> Iterator[tuple[str, str]]:
    """Name and text of files that are there, up to `OF_A_KIND` characters; none that tells of our markup."""
    left = OF_A_KIND
    for folder in FOLDERS:
        for path in sorted(Path(folder).rglob(f"*.{kind}")) if Path(folder).is_dir() else []:
            text = read(path)
            if WORD not in text.upper():
                left -= len(text)
                yield str(path), text
            if left < 0:
                return


def read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[:FILE]
    except OSError:
        return ""


def unchanged(text: str, step: int) -> None:
    """Feed `text` in steps: all of it comes back as text, and nothing else does."""
    parser = Parser(tool_set("agent"))
    shown = []
    for start in range(0, len(text), step):
        shown += parser.feed(text[start : start + step])
    shown += parser.close()
    assert [event for event in shown if not isinstance(event, Text)] == []
    assert "".join(event.text for event in shown if isinstance(event, Text)) == text


@pytest.mark.parametrize("language", TEMPLATES)
def test_a_language(language: str) -> None:
    text = generated(language, 6_000)
    unchanged(text, 4)
    unchanged(text, len(text))


@pytest.mark.slow
def test_nothing_in_the_corpus_changes() -> None:
    size = 0
    for kind in KINDS:
        for _, text in installed(kind):
            unchanged(text, 1000)
            size += len(text)
    for language in TEMPLATES:
        share = max(100_000, (SIZE - size) // len(TEMPLATES) + 1)
        unchanged(generated(language, share), 1000)
        size += share
    assert size >= SIZE


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["py", "md", "html", "js", "h", "xml"])
def test_installed_files_in_small_pieces(kind: str) -> None:
    for number, (_, text) in enumerate(installed(kind)):
        if number == 10:
            break
        unchanged(text[:30_000], 3)


def changed(step: Callable[[str, int], None], text: str) -> bool:
    try:
        step(text, 1000)
    except AssertionError:
        return True
    return False


def test_the_check_can_fail() -> None:
    """A leak in the middle of the corpus is seen."""
    leak = (
        f'<{BAR}{WORD}{BAR}invoke name="bash"><{BAR}{WORD}{BAR}parameter name="command">id</{BAR}{WORD}{BAR}parameter>'
    )
    text = generated("log", 2_000)
    assert not changed(unchanged, text)
    assert changed(unchanged, f"{text}\n\n{leak}</{BAR}{WORD}{BAR}invoke>\n\n{text}")
