package page

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// browser is a Chromium with one page open.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// executable finds Chromium, or skips.
func executable(t *testing.T) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("OUTBOX_TEST_BROWSER") == "required" {
		t.Fatal("there is no Chromium (Debian: apt-get install chromium)")
	}
	t.Skip("NOT TESTED: there is no Chromium (Debian: apt-get install chromium)")
	return ""
}

// start starts a Chromium that reaches nothing but what it is told to open.
func start(t *testing.T) *browser {
	t.Helper()
	options := append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...)
	options = append(options,
		chromedp.ExecPath(executable(t)), chromedp.UserDataDir(filepath.Join(t.TempDir(), "profile")), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
	)
	allocated, stop := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		cancel()
		stop()
	})
	if err := chromedp.Do(ctx); err != nil { // the browser lives as long as the context of the first call
		t.Fatalf("start Chromium: %v", err)
	}
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.complain); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, cdplog.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.complaints {
			t.Errorf("the browser complains: %s", text)
		}
	})
	return b
}

// complain notes what the browser finds wrong with a page: scripts that fail,
// what the content security policy stopped.
func (b *browser) complain(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError && e.Entry.Source != cdplog.EntrySourceNetwork { // answers of 403 are meant
			b.complaints = append(b.complaints, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Text)
	}
}

const patience = 30 * time.Second

// do does what a person does with the page.
func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%v, on the page: %s", err, b.text("body"))
	}
}

// ask evaluates JavaScript.
func ask[T any](b *browser, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	answer, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v", script, err)
	}
	return answer
}

// open opens an address and waits for the page.
func (b *browser) open(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// as gives every request a name and a password, as the browser of a person does
// who was asked for them.
func (b *browser) as(name, password string) {
	b.t.Helper()
	headers := network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Authorization": basic(name, password)}}
	if _, err := chromedp.Call(b.ctx, network.SetExtraHTTPHeaders, headers); err != nil {
		b.t.Fatal(err)
	}
}

// scripts switches the page's scripts on and off.
func (b *browser) scripts(on bool) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on}); err != nil {
		b.t.Fatal(err)
	}
}

// text is what a person reads in an element.
func (b *browser) text(selector string) string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector(`+quoted(selector)+`)?.innerText ?? ""`))
	if err != nil { // between two pages
		return ""
	}
	return text
}

// await waits until an element's text has something.
func (b *browser) await(selector, want string) {
	b.t.Helper()
	harness.Eventually(b.t, patience, func() error {
		if text := b.text(selector); !strings.Contains(text, want) {
			return fmt.Errorf("%s has no %q: %s", selector, want, text)
		}
		return nil
	})
}

// click clicks, and waits for the next page.
func (b *browser) click(selector string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector)))
	for err != nil && strings.Contains(err.Error(), "Could not find node") && ctx.Err() == nil { // the page was brought up to date meanwhile
		_, err = chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector)))
	}
	if err != nil {
		b.t.Fatalf("click %s: %v, on the page: %s", selector, err, b.text("body"))
	}
}

// tick ticks a box, or types nothing else than a click.
func (b *browser) tick(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// artefacts is where screenshots go.
func artefacts(t *testing.T) string {
	dir := os.Getenv("OUTBOX_TEST_ARTEFACTS")
	if dir == "" {
		return t.TempDir()
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	return dir
}

// look is how a picture is taken.
type look struct {
	name   string
	width  int64
	scheme string
}

var (
	screen = look{"", 1200, "light"}
	dark   = look{"-dark", 1200, "dark"}
	phone  = look{"-phone", 390, "light"}

	darkPhone = look{"-phone-dark", 390, "dark"}
)

// shoot takes pictures of the page as it is, and looks at each for what some
// people could not read or reach.
func (b *browser) shoot(name string, looks ...look) {
	b.t.Helper()
	dir := artefacts(b.t)
	for _, look := range looks {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}}}
		if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
			b.t.Fatal(err)
		}
		b.do(chromedp.EmulateViewport(look.width, 800))
		if over := ask[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
			b.t.Errorf("%s%s: %d pixels wider than the screen", name, look.name, over)
		}
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+look.name+".png"), picture, 0o600)
		}
		if err != nil {
			b.t.Fatal(err)
		}
		b.accessible(name + look.name)
	}
	b.do(chromedp.EmulateViewport(1200, 800))
}

// axeSum is the SHA-256 of the version that is fetched.
const axeSum = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"

// axe is the checker of accessibility, fetched once; empty: it cannot be had.
var axe = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "outbox-cdc-axe-")
	if err != nil {
		return ""
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, step := range [][]string{{"npm", "pack", "--silent", "axe-core@4.14.1"}, {"tar", "xzf", "axe-core-4.14.1.tgz", "package/axe.min.js"}} {
		cmd := exec.CommandContext(ctx, step[0], step[1:]...)
		cmd.Dir = dir
		if cmd.Run() != nil {
			return ""
		}
	}
	script, err := os.ReadFile(filepath.Join(dir, "package", "axe.min.js"))
	if sum := sha256.Sum256(script); err != nil || hex.EncodeToString(sum[:]) != axeSum {
		return ""
	}
	return string(script)
})

// accessible fails for what axe-core calls serious or critical.
// https://www.deque.com/axe/core-documentation/api-documentation/
func (b *browser) accessible(name string) {
	b.t.Helper()
	if axe() == "" {
		b.t.Log("NOT CHECKED: accessibility, since axe-core cannot be fetched with npm")
		return
	}
	ask[int](b, axe()+"; 0")
	found := ask[string](b, `axe.run().then(r => JSON.stringify(r.violations.map(v =>
		({id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.slice(0, 3).map(n => n.html + " " + n.failureSummary)}))))`)
	var violations []struct {
		ID, Impact, Help string
		Nodes            []string
	}
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		b.t.Fatalf("axe-core: %v: %s", err, found)
	}
	for _, v := range violations {
		if v.Impact == "serious" || v.Impact == "critical" {
			b.t.Errorf("%s: %s, %s: %s\n%s", name, v.ID, v.Impact, v.Help, strings.Join(v.Nodes, "\n"))
		} else {
			b.t.Logf("%s: %s, %s: %s", name, v.ID, v.Impact, v.Help)
		}
	}
}

func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}
