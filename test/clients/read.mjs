// Reads a topic by one of JavaScript's libraries: BROKERS TOPIC default|committed LIBRARY.
const [brokers, topic, mode, library] = process.argv.slice(2)
const groupId = `${library.replace(/\W/g, '')}-${topic}-${mode}`
const values = []
let last = Date.now()

const quiet = () => new Promise((resolve) => {
  const timer = setInterval(() => {
    if (Date.now() - last < (values.length ? 3000 : 30000)) return
    clearInterval(timer)
    resolve()
  }, 200)
})
const take = (value) => {
  values.push(value.toString())
  last = Date.now()
}

if (library === 'kafkajs') {
  const { Kafka, logLevel } = (await import('kafkajs')).default
  const consumer = new Kafka({ brokers: [brokers], logLevel: logLevel.NOTHING })
    .consumer({ groupId, ...(mode === 'committed' ? { readUncommitted: false } : {}) })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => take(message.value) })
  await quiet()
  await consumer.disconnect()
} else if (library === 'platformatic') {
  const { Consumer } = await import('@platformatic/kafka')
  const consumer = new Consumer({ groupId, clientId: 'read', bootstrapBrokers: [brokers], ...(mode === 'committed' ? { isolationLevel: 1 } : {}) })
  const stream = await consumer.consume({ topics: [topic], mode: 'earliest' })
  stream.on('data', (message) => take(message.value))
  await quiet()
} else { // librdkafka's, by two packages with the same classes
  const { KafkaConsumer } = (await import(library === 'node-rdkafka' ? library : '@confluentinc/kafka-javascript')).default
  const consumer = new KafkaConsumer(
    { 'bootstrap.servers': brokers, 'group.id': groupId, ...(mode === 'committed' ? { 'isolation.level': 'read_committed' } : {}) },
    { 'auto.offset.reset': 'earliest' },
  )
  consumer.on('data', (message) => take(message.value))
  await new Promise((resolve, reject) => consumer.connect({}, (error) => (error ? reject(error) : resolve())))
  consumer.subscribe([topic])
  consumer.consume()
  await quiet()
}
console.log(values.join(' '))
process.exit(0)
