package sink

import (
	"hash/crc32"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// PartitionOf returns the partition, out of n, of a record with this key. The default is the Java client's
// partitioner.
func PartitionOf(by outbox.Partitioner, key []byte, n int) int32 {
	switch by {
	case outbox.CRC32: // librdkafka, rd_kafka_msg_partitioner_consistent
		return int32(int(crc32.ChecksumIEEE(key)) % n)
	case outbox.FNV1a: // sarama, NewHashPartitioner: the remainder of a signed hash, without its sign
		p := int32(fnv1a(key)) % int32(n)
		return max(p, -p)
	default: // the Java client, BuiltInPartitioner.partitionForKey: toPositive(murmur2(key)) % n
		return int32(int(murmur2(key)&0x7fffffff) % n)
	}
}

// fnv1a is the hash of package hash/fnv (New32a). Unlike that, it allocates nothing.
func fnv1a(key []byte) uint32 {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for _, b := range key {
		h = (h ^ uint32(b)) * prime
	}
	return h
}

// murmur2 is the hash by which the Java client chooses a keyed record's partition
// (org.apache.kafka.common.utils.Utils.murmur2): 32 bits, seed 0x9747b28c. Records must go to the same
// partitions as those of the relay that we replace.
func murmur2(key []byte) uint32 {
	const (
		seed = 0x9747b28c
		mult = 0x5bd1e995
	)
	h := uint32(seed) ^ uint32(len(key))
	for len(key) >= 4 {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= mult
		k ^= k >> 24
		k *= mult
		h = h*mult ^ k
		key = key[4:]
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * mult
	}
	h ^= h >> 13
	h *= mult
	return h ^ h>>15
}

// stickyBytes is how many bytes go to one partition before records without a key move on to another one. It
// is batch.size of the Java client's uniform sticky partitioner (KIP-794).
const stickyBytes = 16 << 10
