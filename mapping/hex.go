package mapping

import "encoding/hex"

// nibbles holds the value of each hex digit, and notHex for other bytes.
var nibbles = func() (table [256]uint8) {
	for i := range table {
		table[i] = notHex
	}
	for i, c := range []byte("0123456789abcdef") {
		table[c] = uint8(i)
	}
	for i, c := range []byte("ABCDEF") {
		table[c] = uint8(10 + i)
	}
	return table
}()

const notHex = 0xFF

// decodeHex fills out with the bytes that twice as many digits stand for.
func decodeHex(out, digits []byte) bool {
	digits = digits[:2*len(out)]
	var bad uint8
	for i := range out {
		hi, lo := nibbles[digits[2*i]], nibbles[digits[2*i+1]]
		bad |= hi | lo
		out[i] = hi<<4 | lo
	}
	return bad < 0x10 // every digit is below 16, every other byte 0xFF
}

// parseUUID reads the form that PostgreSQL prints, in either case.
func parseUUID(out, text []byte) bool {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return false
	}
	return decodeHex(out[0:4], text[0:8]) && decodeHex(out[4:6], text[9:13]) &&
		decodeHex(out[6:8], text[14:18]) && decodeHex(out[8:10], text[19:23]) &&
		decodeHex(out[10:16], text[24:36])
}

// appendUUID prints 16 bytes as PostgreSQL does.
func appendUUID(out, uuid []byte) []byte {
	for i, part := range [][]byte{uuid[0:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:16]} {
		if i > 0 {
			out = append(out, '-')
		}
		out = hex.AppendEncode(out, part)
	}
	return out
}
