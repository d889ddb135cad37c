package outbox

import "strings"

// maxCompared is the length in bytes of the longest word that is compared. PostgreSQL's own names have at
// most 63 bytes.
const maxCompared = 255

// Nearest returns the known word that is closest to word, ignoring case, and has at most the given number of
// typos. It returns "" if there is none.
func Nearest(word string, known []string, most int) (nearest string) {
	if len(word) > maxCompared {
		return ""
	}
	for _, k := range known {
		if len(k) > maxCompared {
			continue
		}
		if n := typos(strings.ToLower(word), strings.ToLower(k)); n <= most {
			nearest, most = k, n-1
		}
	}
	return nearest
}

// typos returns how many bytes have to be inserted, deleted, replaced or swapped with their neighbour to turn
// a into b (Damerau's optimal string alignment).
func typos(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
