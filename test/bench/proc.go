package bench

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ticks per second of the times in /proc, on every Linux that Go runs on.
const ticks = 100

// stat is what /proc/PID/stat says of a process, in seconds.
// https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
type stat struct {
	parent   int
	own      float64 // user and system
	children float64 // of those that have ended and were waited for
}

var errStat = errors.New("/proc/PID/stat is not as expected")

func parseStat(text string) (stat, error) {
	// The name in parentheses may hold anything.
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return stat{}, errStat
	}
	f := strings.Fields(text[end+1:])
	if len(f) < 15 {
		return stat{}, errStat
	}
	var n [15]float64
	for _, i := range []int{1, 11, 12, 13, 14} {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return stat{}, errStat
		}
		n[i] = v
	}
	return stat{parent: int(n[1]), own: (n[11] + n[12]) / ticks, children: (n[13] + n[14]) / ticks}, nil
}

func statOf(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(text))
}

// cpuOf is the CPU that a process and all of its children have used so far.
func cpuOf(pid int) (float64, error) {
	s, err := statOf(pid)
	if err != nil {
		return 0, err
	}
	sum := s.own + s.children
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		child, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		// One that has just ended is in its parent's sum at the next look.
		if c, err := statOf(child); err == nil && c.parent == pid {
			sum += c.own + c.children
		}
	}
	return sum, nil
}

// peakOf is the largest resident size of a process so far, in MiB.
func peakOf(pid int) (float64, error) {
	kib, err := procField(fmt.Sprintf("/proc/%d/status", pid), "VmHWM")
	return kib / 1024, err
}

// procField is a number in one of the files with lines such as VmHWM: 1 kB.
func procField(path, name string) (float64, error) {
	text, err := procText(path, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSuffix(text, " kB"), 64)
}

func procText(path, name string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, ok := strings.Cut(lines.Text(), ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", path, name)
}
